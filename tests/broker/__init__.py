"""The broker, request by request, in virtual time."""
