package main

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The image runs as its configuration says, in a read-only root in which it is the only program, with a volume for
// the data that its user may write. Its own probe says when it is ready.
func TestImageRuns(t *testing.T) {
	if !inNamespaces(t) {
		return
	}
	image, err := real.image(runtime.GOARCH)
	check(t, err)
	file, err := image.ConfigFile()
	check(t, err)
	config := file.Config
	uid, err := strconv.Atoi(strings.Split(config.User, ":")[0])
	check(t, err)
	root, volume := shortDir(t), shortDir(t)
	unpack(t, image, root)
	owned(t, volume, uid, uid)
	check(t, syscall.Mount(root, root, "", syscall.MS_BIND, ""))
	t.Cleanup(func() { check(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	check(t, syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	check(t, syscall.Mount(volume, filepath.Join(root, "data"), "", syscall.MS_BIND, ""))
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("the root is not read-only: %v", err)
	}

	p := &process{root: root, uid: uid, gid: uid, env: config.Env}
	p.serves(t, sendTo("udp", "127.0.0.1:8125"), config.Healthcheck.Test[1:], append(config.Entrypoint, config.Cmd...)...)
	if len(paths(t, volume)) == 0 {
		t.Error("the volume has no data")
	}
}

// unpack writes the files of an image below root.
func unpack(t *testing.T, image v1.Image, root string) {
	t.Helper()
	layers, err := image.Layers()
	check(t, err)
	for _, layer := range layers {
		stream, err := layer.Uncompressed()
		check(t, err)
		defer stream.Close()
		r := tar.NewReader(stream)
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			check(t, err)
			path := filepath.Join(root, h.Name)
			if h.Typeflag == tar.TypeDir {
				owned(t, path, h.Uid, h.Gid)
				continue
			}
			text, err := io.ReadAll(r)
			check(t, err)
			check(t, os.WriteFile(path, text, h.FileInfo().Mode()))
		}
	}
}

// The layout has one name, which leads to an image for each architecture. Each image is valid, says what it is, and
// is the same as the one that `docker load` takes.
func TestLayout(t *testing.T) {
	r := built(t)
	check(t, r.writeImages())
	dir := t.TempDir()
	untar(t, r.layout(), dir)
	outer, err := layout.ImageIndexFromPath(dir)
	check(t, err)
	named, err := outer.IndexManifest()
	check(t, err)
	if len(named.Manifests) != 1 {
		t.Fatalf("the layout has %+v", named.Manifests)
	}
	annotations := map[string]string{
		"org.opencontainers.image.ref.name": r.tag(),
		"io.containerd.image.name":          "docker.io/freshet-io/freshet:" + r.tag(),
	}
	if got := named.Manifests[0].Annotations; !maps.Equal(got, annotations) {
		t.Errorf("the layout is annotated with %v, want %v", got, annotations)
	}
	index, err := outer.ImageIndex(named.Manifests[0].Digest)
	check(t, err)
	check(t, validate.Index(index))
	images, err := index.IndexManifest()
	check(t, err)
	var found []string
	for _, m := range images.Manifests {
		found = append(found, m.Platform.Architecture)
		image, err := index.Image(m.Digest)
		check(t, err)
		file, err := image.ConfigFile()
		check(t, err)
		if file.OS != "linux" || file.Architecture != m.Platform.Architecture || !file.Created.Equal(r.time) {
			t.Errorf("%s: the image is for %s/%s, created at %s", m.Platform, file.OS, file.Architecture, file.Created)
		}
		for label, want := range map[string]string{"version": r.version, "revision": r.revision,
			"licenses": "Apache-2.0", "source": "https://github.com/freshet-io/freshet"} {
			if got := file.Config.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("%s: the label %s is %q, want %q", m.Platform, label, got, want)
			}
		}
		tag, err := name.NewTag("freshet-io/freshet:" + r.tag())
		check(t, err)
		loaded, err := tarball.ImageFromPath(r.loadable(m.Platform.Architecture), &tag)
		check(t, err)
		config, err := loaded.ConfigName()
		check(t, err)
		if want, err := image.ConfigName(); err != nil || config != want {
			t.Errorf("%s: docker loads %s, and the layout has %s: %v", m.Platform, config, want, err)
		}
	}
	if !slices.Equal(found, architectures) {
		t.Errorf("images for %v, want %v", found, architectures)
	}
}

func untar(t *testing.T, file, dir string) {
	t.Helper()
	in, err := os.Open(file)
	check(t, err)
	defer in.Close()
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		check(t, err)
		path := filepath.Join(dir, h.Name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		text, err := io.ReadAll(r)
		check(t, err)
		check(t, os.WriteFile(path, text, 0o644))
	}
}

// The image listens where published ports reach it, by variables that freshet serve knows; its user is a number other
// than 0, and owns the data's directory.
func TestImageConfig(t *testing.T) {
	config := real.imageConfig()
	help, err := printed("serve", "--help")
	check(t, err)
	variables := map[string]string{}
	for _, v := range config.Env {
		key, value, _ := strings.Cut(v, "=")
		variables[key] = value
		flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(key, "FRESHET_"), "_", "-"))
		if !slices.Contains(strings.Fields(string(help)), flag) {
			t.Errorf("the variable %s sets the flag %s, which freshet serve does not have", key, flag)
		}
	}
	for variable, exposed := range map[string]string{"FRESHET_DOGSTATSD_UDP": "8125/udp",
		"FRESHET_HTTP_LISTEN": "7125/tcp", "FRESHET_DISTRIBUTOR_OTLP_GRPC_LISTEN": "4317/tcp"} {
		port, _, _ := strings.Cut(exposed, "/")
		at, err := netip.ParseAddrPort(variables[variable])
		if _, published := config.ExposedPorts[exposed]; err != nil || at.String() != "0.0.0.0:"+port || !published {
			t.Errorf("%s = %q, want 0.0.0.0:%s, and that port published", variable, variables[variable], port)
		}
	}
	data := variables["FRESHET_DATA_DIR"]
	if _, volume := config.Volumes[data]; !volume || config.User != "65532:65532" {
		t.Errorf("volumes %v and user %s, want one at %s and 65532:65532", config.Volumes, config.User, data)
	}
	text, err := real.imageRoot(runtime.GOARCH)
	check(t, err)
	r := tar.NewReader(strings.NewReader(string(text)))
	for {
		h, err := r.Next()
		check(t, err)
		if h.Name == data[1:]+"/" {
			if h.Uid != imageUser || h.Gid != imageUser {
				t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
			}
			break
		}
	}
}

// The certificates are a file that Go programs read.
func TestCertificates(t *testing.T) {
	rest, n := certificates(), 0
	for block := (*pem.Block)(nil); len(rest) > 0; n++ {
		block, rest = pem.Decode(rest)
		if block == nil {
			t.Fatalf("after %d certificates: %.100q", n, rest)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Error(err)
		}
	}
	if n < 80 {
		t.Errorf("%d certificates", n)
	}
}
