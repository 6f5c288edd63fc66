"""`specdec eval-draft`: what a draft is worth for a target."""
