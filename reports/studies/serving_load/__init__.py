"""vLLM's server under load: latencies over clients and rates, goodput, waiting."""
