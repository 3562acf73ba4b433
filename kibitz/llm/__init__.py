"""Language models: one client, four providers, answers that are legal by construction.

`kibitz.llm.client.connect` gives a client for a preset; `kibitz.llm.blocking.Blocking` the same for
callers without an event loop. Nothing heavy is imported before a provider is first asked.
"""
