"""The verbs `bench fleet`: a campaign over many nodes.

Options become values here, and results text. What a campaign does lives in `appliance.fleet`.
"""
