"""Sign-in with an OpenID Connect identity provider."""
