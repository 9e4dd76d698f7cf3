"""Need, site and trials become a Plan. Nothing here touches disk or cluster."""
