"""When cron schedules fire, decided a second time and differently: by walking real minutes.

Invariant: what decides uses neither the code under test, nor cronsim, nor arithmetic from local times to moments.
Clocks are only ever read: what does this zone show at this minute? `python -m tools.oracle --full` compares 2020-2037.
"""
