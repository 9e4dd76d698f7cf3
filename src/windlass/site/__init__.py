"""What is known of the machine or cluster at hand."""
