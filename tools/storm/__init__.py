"""The storm: kill the queue's processes at named moments, then count what was lost.

`kinds/squall.py` is the job, `place` starts and finds processes, `moments` says in which phase a
job is, `strikes` kill, `storm` is the loop, `check` holds the wreckage against the rules.
"""
