"""Connections: frames over asyncio transports, request and answer matching, routes to handlers."""
