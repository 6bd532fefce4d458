"""Steps of a serving engine by kind: their time, and the least that the model's work takes."""
