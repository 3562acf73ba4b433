# The live server: cockpit, API and OpenEnv on port 8000. It is reachable from outside, so it needs a token:
#   docker build -t kibitz . && docker run -p 8000:8000 -e KIBITZ_TOKEN=at-least-8-characters kibitz
# Every option of `kibitz serve` is a variable (KIBITZ_STORE, KIBITZ_BUS, KIBITZ_MAX_EPISODES, ...): docs/deploy.md.
FROM python:3.11.14-slim-bookworm

# A voice that needs no key. Without one the commentary is captions only.
RUN apt-get update && apt-get install -y --no-install-recommends espeak-ng && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 user
USER user
WORKDIR /home/user/app
ENV PATH=/home/user/.local/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    JAX_PLATFORMS=cpu \
    KIBITZ_HOST=0.0.0.0 \
    KIBITZ_PORT=8000 \
    KIBITZ_STORE=/home/user/data/kibitz.db \
    KIBITZ_RUNS=/home/user/data/runs
RUN mkdir -p /home/user/data /home/user/.cache/kibitz/audio

COPY --chown=user *.md pyproject.toml requirements.lock LICENSE ./
COPY --chown=user tools tools
COPY --chown=user docs docs
COPY --chown=user configs configs
COPY --chown=user kibitz kibitz
ARG EXTRAS=live,scale
RUN pip install --no-cache-dir --user --constraint requirements.lock ".[${EXTRAS}]"

EXPOSE 8000
HEALTHCHECK --start-period=20s CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['KIBITZ_PORT']}/health\", timeout=5)"]
CMD ["kibitz", "serve"]
