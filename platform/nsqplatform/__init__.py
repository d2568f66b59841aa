"""The operator's web platform: a Django project (`console`) and its applications."""
