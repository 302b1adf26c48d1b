package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const (
	repository  = "https://github.com/freshet-io/freshet"
	license     = "Apache-2.0"
	summary     = "metrics pipeline in one binary: DogStatsD in, PromQL out"
	description = summary + `
Freshet takes DogStatsD, StatsD, Prometheus remote write and OpenTelemetry,
aggregates and stores measurements, and answers PromQL about a second later.`
)

func (r release) deb(arch string) string {
	return filepath.Join(r.out, fmt.Sprintf("freshet_%s_%s.deb", r.version, arch))
}

func (r release) rpm(arch string) string {
	return filepath.Join(r.out, fmt.Sprintf("freshet-%s-1.%s.rpm", r.version, rpmArchitectures[arch]))
}

var rpmArchitectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// writeDeb writes the package for Debian and what descends from it.
func (r release) writeDeb(arch string, m manual) error {
	info := r.packageInfo(arch)
	info.Section = "net"
	info.Priority = "optional"
	info.Depends = []string{"systemd | systemd-standalone-sysusers | systemd-sysusers"} // as Debian's helper writes
	return r.writePackage(deb.Default, info, r.deb(arch), r.contents(arch, m, "vendor-completions"))
}

// writeRPM writes the package for Fedora, RHEL and SUSE.
func (r release) writeRPM(arch string, m manual) error {
	info := r.packageInfo(arch)
	info.Depends = []string{"/usr/bin/systemd-sysusers"}
	info.RPM.BuildHost = "freshet" // not this machine's name, which would make the bytes differ
	return r.writePackage(rpm.DefaultRPM, info, r.rpm(arch), r.contents(arch, m, "site-functions"))
}

// packageInfo returns what both packages say of Freshet.
func (r release) packageInfo(arch string) *nfpm.Info {
	script := func(name string) string { return filepath.Join(r.source, "release", "files", name) }
	return nfpm.WithDefaults(&nfpm.Info{
		Name: "freshet", Arch: arch, Platform: "linux", Version: r.version, Description: description,
		Maintainer: "The Freshet authors <freshet-io@users.noreply.github.com>", Homepage: repository, License: license,
		MTime: r.time, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Recommends: []string{"ca-certificates"}, // to forward samples to servers with public certificates
			Scripts: nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"),
				PostRemove: script("postrm")},
		},
	})
}

// content is a file of a package. Its bytes are in text, or in the file from.
type content struct {
	path, from string
	text       []byte
	mode       fs.FileMode
	config     bool // administrators may change it, and upgrades keep their changes
}

// contents returns the files of a package. Debian and RPM look for completions of zsh in different places.
func (r release) contents(arch string, m manual, zsh string) []content {
	const doc = "/usr/share/doc/freshet/"
	systemd := filepath.Join(r.source, "deploy", "systemd")
	all := []content{
		{path: "/usr/bin/freshet", from: r.binary(arch), mode: 0o755},
		{path: "/usr/lib/systemd/system/freshet.service", from: filepath.Join(systemd, "freshet.service")},
		{path: "/usr/lib/systemd/system/freshet.socket", from: filepath.Join(systemd, "freshet.socket")},
		{path: "/usr/lib/sysusers.d/freshet.conf", from: filepath.Join(systemd, "freshet.sysusers.conf")},
		{path: "/etc/freshet.yaml", text: m.config, config: true},
		{path: "/etc/default/freshet", from: filepath.Join(r.source, "release", "files", "default"), config: true},
		{path: "/usr/share/bash-completion/completions/freshet", text: m.completions["bash"]},
		{path: "/usr/share/zsh/" + zsh + "/_freshet", text: m.completions["zsh"]},
		{path: "/usr/share/fish/vendor_completions.d/freshet.fish", text: m.completions["fish"]},
		{path: doc + "copyright", from: filepath.Join(r.source, "LICENSE")},
		{path: doc + "CHANGELOG.md", from: filepath.Join(r.source, "CHANGELOG.md")},
		{path: doc + "licenses-page.txt", from: filepath.Join(r.source, "ui", "dist", "licenses.txt")},
		{path: doc + "examples/alerts.yaml", from: filepath.Join(r.source, "deploy", "alerts.yaml")},
	}
	for _, part := range []string{"node", "collector", "gateway"} {
		name := "cluster-" + part + ".conf"
		all = append(all, content{path: doc + "examples/" + name, from: filepath.Join(systemd, name)})
	}
	for name, text := range m.pages {
		section := strings.TrimPrefix(filepath.Ext(name), ".")
		all = append(all, content{path: "/usr/share/man/man" + section + "/" + name + ".gz", text: compressed(text)})
	}
	return all
}

// compressed returns a gzip stream without a time in it.
func compressed(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		panic("BUG: " + err.Error()) // a buffer takes all
	}
	if err := w.Close(); err != nil {
		panic("BUG: " + err.Error())
	}
	return b.Bytes()
}

// writePackage writes a package with the given files.
func (r release) writePackage(packager nfpm.Packager, info *nfpm.Info, path string, all []content) error {
	staging, err := os.MkdirTemp("", "freshet-package") // nfpm takes files only
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	for i, c := range all {
		if c.from == "" {
			c.from = filepath.Join(staging, fmt.Sprint(i))
			if err := os.WriteFile(c.from, c.text, 0o600); err != nil {
				return err
			}
		}
		kind := files.TypeFile
		if c.config {
			kind = files.TypeConfigNoReplace
		}
		info.Contents = append(info.Contents, &files.Content{Source: c.from, Destination: c.path, Type: kind,
			FileInfo: &files.ContentFileInfo{Mode: cmp.Or(c.mode, 0o644), MTime: r.time, Owner: "root", Group: "root"}})
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return cmp.Or(packager.Package(info, out), out.Close())
}
