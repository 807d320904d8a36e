# Workers, servers, coordinators, the operator, and the scheduler where it does not learn: MXNet and the examples, no torch.
# Build from the repository's folder:
#   docker build -f k8s/images/runtime.Dockerfile -t dl2/runtime:0.1.0 .
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/dl2
# What we need, in a layer that an edit of ours does not change.
COPY pyproject.toml README.md requirements/lock.txt /needs/
RUN /opt/dl2/bin/pip install --no-cache-dir -c /needs/lock.txt "/needs[mxnet,scheduler,kubernetes]" scikit-learn \
    && /opt/dl2/bin/pip uninstall -y elastic-ps \
    && find /opt/dl2 -type d -name tests -prune -exec rm -rf {} +
COPY . /source
RUN /opt/dl2/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /source

FROM python:3.11-slim
# libgomp, of MXNet and scikit-learn; libquadmath, of MXNet's Fortran.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 libquadmath0 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/dl2 /opt/dl2
COPY --from=build /wheel /opt/wheel
RUN /opt/dl2/bin/pip install --no-cache-dir --no-deps /opt/wheel/*.whl
COPY examples /opt/dl2/examples
WORKDIR /opt/dl2
ENV PATH=/opt/dl2/bin:$PATH HOME=/tmp LOGNAME=dl2 NUMBA_CACHE_DIR=/tmp/numba PYTHONUNBUFFERED=1
USER 65532:65532
