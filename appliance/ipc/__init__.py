"""Messages between parent and children, and their processes.

One socket a launch, and the processes that a launch is made of. What is measured or judged is not
known here.
"""
