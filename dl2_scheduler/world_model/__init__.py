"""This package says what a live cluster's history tells of its world, and plays the futures that follow from it.

The guard compares policies in such futures, forecasts are read off them, and learning rehearses in them.
"""
