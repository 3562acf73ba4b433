"""Language models: one client, four providers, answers that are legal by construction.

`kibitz.llm.client.client.connect` gives a client for a preset; `kibitz.llm.client.blocking.BlockingClient` the same for
callers without an event loop. Nothing heavy is imported before a provider is first asked.
"""
