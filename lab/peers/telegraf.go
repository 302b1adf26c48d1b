package peers

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// telegraf is built with only the plugins that it needs here, by its own build tags. All 300
// plugins would take many minutes and a gigabyte of modules.
var telegraf = Peer{
	Name: "telegraf", Version: "v1.37.2", Language: "Go", Tags: true,
	program: "telegraf",
	build: goModule("github.com/influxdata/telegraf/cmd/telegraf",
		"custom", "inputs.statsd", "inputs.internal", "outputs.discard", "outputs.file"),
	plan: planTelegraf,
}

const telegrafConfig = `
[agent]
  interval = "%[1]s"
  flush_interval = "%[1]s"
  omit_hostname = true

[[inputs.statsd]]
  service_address = "%[2]s"
  datadog_extensions = true # otherwise a line with tags is an error
  datadog_distributions = true # so is one of kind d
  read_buffer_size = %[3]d

[[outputs.discard]]
  namedrop = ["internal_*"]

# Its counters, each second, for us to read.
[[inputs.internal]]
  interval = "1s"
  collect_memstats = false # stops the world
[[outputs.file]]
  files = ["%[4]s"]
  flush_interval = "1s"
  namepass = ["internal_statsd"]
`

const telegrafCounters = "counters"

func planTelegraf(at place) (plan, error) {
	config, err := at.write("telegraf.conf",
		fmt.Sprintf(telegrafConfig, Flush, at.udp, receiveBuffer, filepath.Join(at.dir, telegrafCounters)))
	return plan{
		command: []string{at.program, "--config", config},
		received: func(context.Context) (Received, error) {
			lines, err := at.read(telegrafCounters)
			if err != nil {
				return Received{}, err
			}
			return telegrafReceived(lines)
		},
	}, err
}

var (
	telegrafPackets = regexp.MustCompile(`[ ,]udp_packets_received=(\d+)i`)
	telegrafDropped = regexp.MustCompile(`[ ,]udp_packets_dropped=(\d+)i`)
)

// telegrafReceived reads the last complete line. Telegraf counts the datagrams that it received, and the
// datagrams that it dropped because its queue was full. It does not count lines.
func telegrafReceived(lines []byte) (Received, error) {
	lines = lines[:bytes.LastIndexByte(lines, '\n')+1]
	if len(lines) == 0 {
		return Received{}, nil
	}
	last := lines[bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1:]
	received, err := submatch(telegrafPackets, last)
	if err != nil {
		return Received{}, err
	}
	dropped, err := submatch(telegrafDropped, last)
	return Received{Datagrams: received - dropped}, err
}

func submatch(number *regexp.Regexp, line []byte) (uint64, error) {
	found := number.FindSubmatch(line)
	if found == nil {
		return 0, fmt.Errorf("no %v in %q", number, line)
	}
	return strconv.ParseUint(string(found[1]), 10, 64)
}
