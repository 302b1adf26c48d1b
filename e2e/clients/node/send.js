// Reads operations from standard input, sends them with hot-shots, and prints what was sent.
// clients_test.go describes input and output.
'use strict';

const fs = require('fs');
const StatsD = require('hot-shots');

// The client buffers, so that a burst fits the socket.
function client(network, address) {
  const errorHandler = (err) => {
    console.error(err);
    process.exit(1);
  };
  if (network === 'unixgram') {
    return new StatsD({ protocol: 'uds', path: address, maxBufferSize: 8192, errorHandler });
  }
  const [host, port] = address.split(':');
  return new StatsD({ host, port: Number(port), maxBufferSize: 1432, errorHandler });
}

const methods = {
  count: 'increment', updown: 'increment', gauge: 'gauge', timing: 'timing', histogram: 'histogram', distribution: 'distribution', set: 'set',
};

function send(statsd, op) {
  switch (op.method) {
    case 'event':
      statsd.event(op.title, op.text, {
        alert_type: op.alert, aggregation_key: op.key, source_type_name: op.source, priority: op.priority, hostname: op.host,
      }, op.tags);
      return;
    case 'check':
      statsd.check(op.name, op.status, { message: op.message }, op.tags);
      return;
    default:
      for (const value of op.method === 'set' ? op.members : op.values) {
        if (op.method === 'updown' && value < 0) {
          statsd.decrement(op.name, -value, op.rate, op.tags);
          continue;
        }
        statsd[methods[op.method]](op.name, value, op.rate, op.tags);
      }
  }
}

const order = JSON.parse(fs.readFileSync(0, 'utf8'));
const direct = client(order.network, order.address);
const tapped = client(order.network, order.tap);
for (const op of order.operations) {
  if (op.method === 'event') {
    // Only ASCII: hot-shots gives the length of an event in characters, and the protocol wants
    // bytes.
    op.text = op.text.replace(/[^\x00-\x7f]/g, '?');
  }
  send(op.rate === 1 ? direct : tapped, op);
}
direct.close((err1) => {
  tapped.close((err2) => {
    if (err1 || err2) {
      console.error(err1 || err2);
      process.exit(1);
    }
    const version = require('hot-shots/package.json').version;
    console.log(JSON.stringify({ client: `hot-shots ${version}`, sent: order.operations }));
  });
});
