"""Stress beside the products of a burn-in: its kinds, what a launch says of them, what adds up."""
