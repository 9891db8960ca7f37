"""The live lab: a person meets the body before its mirror, in a browser on the same machine.

There is one world for all tabs: every tab shows the same body, and a switch turned in one turns in all. (A
world for each tab would split two cores between them, and two people could not see the same thing.) While no
tab is open the simulation rests.
"""
