"""The dispatcher: conducts runs, and puts every turn to the agent under test."""
