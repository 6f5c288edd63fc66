"""`make gpu-report`: what one GPU proves of this project, in at most 26 minutes, as a page.

Needs Python 3.11 or newer, torch and transformers alone: no network, no plotting library, and Ray
for one step, which is skipped without it.
steps.py lists what runs, goals.py what has to come out.
"""
