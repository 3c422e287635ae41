"""The journal made ready to be judged.

Launches, results of cases, device health, keys under which figures may be compared. No limit and
no ruling is known here.
"""
