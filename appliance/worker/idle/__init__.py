"""The program that times steps on a device alone, and beside a process of its own that waits there.

`bench qualify` orders it (`appliance.qualifying.idle_program`). Nothing is judged here, and no
workload is imported.
"""
