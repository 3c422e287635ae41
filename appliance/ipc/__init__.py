"""What parent and children say to each other.

One socket a launch, and the processes that a launch is made of. What is measured or judged is not
known here.
"""
