"""ASGI server side: waiting requests cost a coroutine, working ones use a bounded number of threads.

Entry points: `__main__.main`, `bridge.Bridge`.
"""
