// A backend of statsd that discards. It keeps how many lines were received, for
// "stats" at the management port: statsd's own counter begins anew at each flush.
exports.init = (startup, config, events) => {
  let received = 0;
  events.on('flush', (time, metrics) => { received += metrics.counters['statsd.metrics_received']; });
  events.on('status', (write) => write(null, 'statsd', 'metrics_received', received));
  return true;
};
