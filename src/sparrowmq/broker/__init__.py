"""The broker: one handler per request, and the parts they share."""
