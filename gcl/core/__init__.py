"""The terms of a collective: operators, groups, layouts, requests, handles, and the checks of their arguments."""
