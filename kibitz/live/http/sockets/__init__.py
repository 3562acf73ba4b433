"""Connections: bounded readers, the fast WebSocket, and whose address counts. Routes are one room up."""
