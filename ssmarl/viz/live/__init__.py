"""The live view: a page that shows a policy, and lets the user move obstacles and goals."""
