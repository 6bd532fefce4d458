"""The operations of networks other than decoders, swept over sizes, and three such networks."""
