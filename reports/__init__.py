"""Pages from a bundle alone.

A view with every number already rounded and labelled, then HTML, then PDF. No ruling is made here,
and templates do no arithmetic.
"""
