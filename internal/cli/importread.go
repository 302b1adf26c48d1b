package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/remoteread"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newImportRemoteReadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remote-read URL",
		Short: "Import what a server answers to Prometheus' remote read",
		Long: `Reads samples from a Prometheus, a Mimir or another server with remote read in streamed
chunks, a day at a time, and sends each day to a server as a block. The memory that this
takes does not grow with the number of samples.

A day that the server has is left out, so a command that was interrupted goes on when it
is run again with the same URL, times, --match, --label and --http-config. URL is the
server's address, or that of its remote read, which ends in /read.`,
		Example: `  freshet import remote-read http://prometheus:9090 --from 2026-10-01T00:00:00Z
  freshet import remote-read http://mimir/prometheus/api/v1/read --http-config mimir.yml --from 1790812800`,
		Args: command.Words(1, 1, "freshet import remote-read URL --from TIME"),
	}
	i := importRead{flags: newImportFlags(cmd.Flags()), times: newSpanFlags(cmd.Flags(), "now")}
	cmd.Flags().StringVar(&i.httpConfig, "http-config", "", "`file` with credentials, headers and TLS for URL, in the "+
		"form of Prometheus' HTTP client configuration")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i.out, i.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
		if err := i.run(cmd.Context(), args[0]); err != nil {
			return fmt.Errorf("import from %s: %w", conf.ShowURL(args[0]), err)
		}
		return nil
	}
	return cmd
}

type importRead struct {
	flags      importFlags
	times      spanFlags
	httpConfig string
	out, notes io.Writer
}

func (i *importRead) run(ctx context.Context, source string) error {
	now := time.Now()
	span, err := i.times.span(now, now)
	if err != nil {
		return err
	}
	add, err := labelsWith(labels.EmptyLabels(), *i.flags.add)
	if err != nil {
		return err
	}
	for _, text := range *i.flags.add {
		if strings.HasSuffix(text, "=") {
			return conf.Mistake(fmt.Errorf("--label %s: a server adds its external labels itself, and remote read cannot leave "+
				"them out; give the label a value, or import blocks by freshet import tsdb", text))
		}
	}
	endpoint, err := readEndpoint(source)
	if err != nil {
		return err
	}
	other, err := i.open(endpoint)
	if err != nil {
		return err
	}
	u, err := newUpload(ctx, i.flags, i.out, i.notes)
	if err != nil {
		return err
	}
	asked := conf.ShowURL(endpoint) + " was asked"
	do := remedies{refused: "check the URL: " + asked, denied: "give credentials by --http-config: " + asked,
		down: "check the URL, and that the server runs"}
	for n, s := range span.slices(fmt.Sprintf("%q %q", other.source, add)) {
		if u.knows(s.id) {
			err = u.has(s.id.String())
		} else {
			u.line.Draw("reading " + s.String())
			err = i.add(ctx, u, s, other.post, add)
		}
		if err != nil {
			return errors.Join(u.tellEmpty(), fmt.Errorf("%s: %w", s, do.goOn(err, n > 0)))
		}
		i.noteParts(u, s)
	}
	return u.end()
}

// noteParts names the blocks of earlier runs, when the day was not over, that the block of a slice makes needless. They
// stay: the other server may have lost samples since, which only they have. If it has fewer now, it surely has.
func (i *importRead) noteParts(u *upload, s slice) {
	var parts []string
	for _, b := range u.known {
		if s.begins(b) && b.Samples <= u.known[s.id.String()].Samples {
			parts = append(parts, b.Block)
		}
	}
	if len(parts) == 0 {
		return
	}
	slices.Sort(parts)
	fmt.Fprintf(i.notes, "note: the server keeps %s of earlier runs beside %s, which has their samples, too: queries "+
		"answer each sample once; to free the room, run %s\n", counted(len(parts), "block"), s.id, u.removal(parts...))
}

// add reads a slice, and sends it.
func (i *importRead) add(ctx context.Context, u *upload, s slice, post remoteread.Post, add labels.Labels) error {
	dir, err := os.MkdirTemp(*i.flags.workDir, "freshet-import-")
	if err != nil {
		return err
	}
	err = i.send(ctx, u, s, post, add, filepath.Join(dir, s.id.String()))
	return errors.Join(err, os.RemoveAll(dir))
}

func (i *importRead) send(
	ctx context.Context, u *upload, s slice, post remoteread.Post, add labels.Labels, dir string,
) error {
	b, err := s.read(ctx, post, add, dir)
	u.line.Clear()
	if err != nil {
		return err
	}
	if b.Meta.Stats.NumSeries == 0 {
		u.lacks(s.from, s.to)
		return nil
	}
	some, err := sample(ctx, b, labels.EmptyLabels())
	if err != nil {
		return err
	}
	return u.add(ctx, b, some)
}

// readEndpoint returns the address of a server's remote read.
func readEndpoint(source string) (string, error) {
	u, err := url.Parse(apiclient.WithScheme(source))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", conf.Mistake(errors.New("URL is no address; write it like http://prometheus:9090"))
	}
	if !strings.HasSuffix(u.Path, "/read") {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/api/v1/read"
	}
	return u.String(), nil
}

// otherServer is the server that is read.
type otherServer struct {
	post remoteread.Post

	// source has everything that decides which samples it answers with. It may have secrets.
	source string
}

// open reads the configuration of --http-config. A header or a credential in it may decide whose samples the server
// answers with, as X-Scope-OrgID of Mimir does.
func (i *importRead) open(endpoint string) (o otherServer, err error) {
	config, text := promconfig.DefaultHTTPClientConfig, []byte(nil)
	if i.httpConfig != "" {
		read, content, err := promconfig.LoadHTTPConfigFile(i.httpConfig)
		if err != nil {
			return o, conf.Mistake(fmt.Errorf("--http-config %s: %w", i.httpConfig, err))
		}
		config, text = *read, content
	}
	o.source = fmt.Sprintf("%q %q", endpoint, text)
	for _, name := range filesOf(config) {
		content, err := os.ReadFile(name)
		if err != nil {
			return o, conf.Mistake(fmt.Errorf("--http-config %s: %w", i.httpConfig, err))
		}
		o.source += fmt.Sprintf(" %q", content)
	}
	client, err := promconfig.NewClientFromConfig(config, "freshet import", promconfig.WithUserAgent(build.UserAgent()))
	if err != nil {
		return o, conf.Mistake(fmt.Errorf("--http-config %s: %w", i.httpConfig, err))
	}
	o.post = func(ctx context.Context, header http.Header, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, body)
		if err != nil {
			return nil, err
		}
		r.Header = header
		return client.Do(r)
	}
	return o, nil
}

// filesOf returns the files with headers and credentials that a configuration names.
func filesOf(c promconfig.HTTPClientConfig) (names []string) {
	names = append(names, c.TLSConfig.CertFile)
	if b := c.BasicAuth; b != nil {
		names = append(names, b.UsernameFile, b.PasswordFile)
	}
	if a := c.Authorization; a != nil {
		names = append(names, a.CredentialsFile)
	}
	if o := c.OAuth2; o != nil {
		names = append(names, o.ClientSecretFile, o.ClientCertificateKeyFile, o.TLSConfig.CertFile)
	}
	if c.HTTPHeaders != nil {
		for _, name := range slices.Sorted(maps.Keys(c.HTTPHeaders.Headers)) {
			names = append(names, c.HTTPHeaders.Headers[name].Files...)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
