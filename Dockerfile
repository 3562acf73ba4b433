# The live server: cockpit, API and OpenEnv on port 8000. It is reachable from outside, so it needs a token:
#   docker build -t kibitz . && docker run -p 8000:8000 -e KIBITZ_TOKEN=at-least-8-characters kibitz
FROM python:3.11.14-slim-bookworm

# A voice that needs no key. Without one the commentary is captions only.
RUN apt-get update && apt-get install -y --no-install-recommends espeak-ng && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 user
USER user
WORKDIR /home/user/app
ENV PATH=/home/user/.local/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    JAX_PLATFORMS=cpu \
    KIBITZ_STORE=/home/user/data/kibitz.db
RUN mkdir -p /home/user/data /home/user/.cache/kibitz/audio

COPY --chown=user *.md pyproject.toml requirements.lock LICENSE ./
COPY --chown=user tools tools
COPY --chown=user docs docs
COPY --chown=user configs configs
COPY --chown=user kibitz kibitz
ARG EXTRAS=live
RUN pip install --no-cache-dir --user --constraint requirements.lock ".[${EXTRAS}]"

EXPOSE 8000
HEALTHCHECK --start-period=20s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
CMD ["kibitz", "serve", "--host", "0.0.0.0", "--port", "8000", "--store", "/home/user/data/kibitz.db"]
