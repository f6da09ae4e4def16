"""What a lane's time costs: the ledger of each day, the price of an hour, its energy."""
