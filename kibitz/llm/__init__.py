"""Language models: prompts, one client, four providers, and answers that are legal by construction.

Start with `client.client.connect`, or `client.blocking.BlockingClient` without an event loop. Heavy libraries
load when a provider is first asked. What to do with an answer is not decided here: see `advice` and `players`.
"""
