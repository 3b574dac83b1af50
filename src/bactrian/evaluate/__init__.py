"""Measures models and conversations: are they any good?"""
