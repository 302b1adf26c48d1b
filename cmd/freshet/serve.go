package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// config holds the keys that every way to install Freshet sets.
type config struct {
	DataDir string   `yaml:"data_dir" help:"directory of all data"`
	Role    []string `yaml:"role" help:"roles to run"`
	HTTP    struct {
		Listen string `yaml:"listen" help:"host:port of the HTTP API; empty for none"`
	} `yaml:"http"`
	DogStatsD struct {
		UDP      string `yaml:"udp" help:"host:port for datagrams; empty for none"`
		Unixgram string `yaml:"unixgram" help:"path of the Unix datagram socket; empty for none"`
		Unix     string `yaml:"unix" help:"path of the Unix stream socket; empty for none"`
	} `yaml:"dogstatsd"`
}

func newServeCommand() *cobra.Command {
	schema := conf.New("FRESHET", config{DataDir: "./data", Role: []string{"all"}})
	cmd := &cobra.Command{Use: "serve", Short: "Run the server", Args: cobra.NoArgs}
	file := cmd.Flags().String("config", os.Getenv("FRESHET_CONFIG"), "YAML `file` to read; also FRESHET_CONFIG")
	schema.AddFlags(cmd.Flags())
	cmd.RunE = func(*cobra.Command, []string) error {
		if _, err := schema.Load(*file, os.LookupEnv); err != nil {
			return err
		}
		return errors.New("serve: no role is built in yet")
	}
	return cmd
}
