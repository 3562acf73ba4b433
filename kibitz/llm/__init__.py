"""Language models: prompts, one client, four providers, and answers that are legal by construction.

Start with `client.client.connect`, or `client.blocking.BlockingClient` without an event loop. Heavy libraries
load with a provider's first request. Using an answer is the job of `advice` and `players`.
"""
