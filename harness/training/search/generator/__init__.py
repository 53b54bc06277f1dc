"""Train the generator of repairs on holes that are cut into code; only this part of the policy needs torch."""
