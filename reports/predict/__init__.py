"""The report of a prediction: how fast a model will serve, or how far predictions lay off."""

from nsight_prof.reports.predict.imported import operators_view
from nsight_prof.reports.predict.view import PredictionView, prediction_view

__all__ = ["PredictionView", "operators_view", "prediction_view"]
