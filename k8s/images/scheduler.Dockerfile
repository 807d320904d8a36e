# The scheduler, with torch for learnt policies. Build from the repository's folder:
#   docker build -f k8s/images/scheduler.Dockerfile -t dl2/scheduler:0.1.0 .
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN python -m venv /opt/dl2 && /opt/dl2/bin/pip install --no-cache-dir -c /source/requirements/lock.txt "/source[scheduler,kubernetes,learning]" \
    && /opt/dl2/bin/python -m compileall -q /opt/dl2

FROM python:3.11-slim
COPY --from=build /opt/dl2 /opt/dl2
ENV PATH=/opt/dl2/bin:$PATH HOME=/tmp LOGNAME=dl2 NUMBA_CACHE_DIR=/tmp/numba
USER 65532:65532
