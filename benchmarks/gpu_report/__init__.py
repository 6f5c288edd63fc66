"""`make gpu-report`: what one GPU proves of this project, in at most 25 minutes, as a page.

Needs Python 3.11 or newer, torch and transformers alone: no Ray, no network, no plotting library.
steps.py lists what runs, goals.py what has to come out.
"""
