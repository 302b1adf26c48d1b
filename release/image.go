package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageName = "freshet-io/freshet"
	imageUser = 65532 // a number other than 0, as Kubernetes requires
	caFile    = "/etc/ssl/certs/ca-certificates.crt"
)

// tag is the version as a tag of an image, which may not have a plus sign.
func (r release) tag() string { return strings.ReplaceAll(r.version, "+", "-") }

// layout is the path of a tar file with an OCI layout of the images for all architectures.
func (r release) layout() string {
	return filepath.Join(r.out, fmt.Sprintf("freshet_%s_image.oci.tar", r.version))
}

// loadable is the path of a tar file with the image for one architecture, for `docker load`.
func (r release) loadable(arch string) string {
	return filepath.Join(r.out, fmt.Sprintf("freshet_%s_image_%s.docker.tar", r.version, arch))
}

// writeImages writes an image for each architecture, and one layout with all of them.
func (r release) writeImages() error {
	tag, err := name.NewTag(imageName + ":" + r.tag())
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := r.image(arch)
		if err != nil {
			return err
		}
		if err := tarball.WriteToFile(r.loadable(arch), tag, image); err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	dir, err := os.MkdirTemp("", "freshet-layout")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// The layout's own index names the release's, so that one name leads to the image for the machine at hand.
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	named := map[string]string{
		"org.opencontainers.image.ref.name": r.tag(),
		// containerd and Podman name the image so.
		"io.containerd.image.name": "docker.io/" + tag.String(),
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(named)); err != nil {
		return err
	}
	return r.writeTar(os.DirFS(dir), r.layout())
}

// image returns the image for an architecture: one static binary, no shell, not root.
func (r release) image(arch string) (v1.Image, error) {
	root, err := r.imageRoot(arch)
	if err != nil {
		return nil, err
	}
	stream := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root)), nil }
	layer, err := tarball.LayerFromOpener(stream, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer,
		History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release-snapshot"}})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Created = v1.Time{Time: r.time}
	file.Config = r.imageConfig()
	return mutate.ConfigFile(image, file)
}

// imageConfig says how a container runs. Elsewhere the default is loopback, but the loopback of a container cannot be
// reached from outside: the options that publish the ports decide which clients can reach them.
func (r release) imageConfig() v1.Config {
	return v1.Config{
		User: fmt.Sprintf("%d:%[1]d", imageUser),
		Env: []string{"FRESHET_DATA_DIR=/data", "FRESHET_DOGSTATSD_UDP=0.0.0.0:8125", "FRESHET_HTTP_LISTEN=0.0.0.0:7125",
			"FRESHET_DISTRIBUTOR_OTLP_GRPC_LISTEN=0.0.0.0:4317"},
		ExposedPorts: map[string]struct{}{"8125/udp": {}, "7125/tcp": {}, "4317/tcp": {}},
		Volumes:      map[string]struct{}{"/data": {}},
		Entrypoint:   []string{"/usr/bin/freshet"},
		Cmd:          []string{"serve"},
		Healthcheck:  &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/freshet", "health"}},
		Labels: map[string]string{
			"org.opencontainers.image.title":         "freshet",
			"org.opencontainers.image.description":   summary,
			"org.opencontainers.image.version":       r.version,
			"org.opencontainers.image.revision":      r.revision,
			"org.opencontainers.image.created":       r.time.Format(time.RFC3339),
			"org.opencontainers.image.source":        repository,
			"org.opencontainers.image.documentation": repository + "/tree/main/docs",
			"org.opencontainers.image.licenses":      license,
		},
	}
}

// imageRoot returns the files of an image as a tar stream.
func (r release) imageRoot(arch string) ([]byte, error) {
	binary, err := os.ReadFile(r.binary(arch))
	if err != nil {
		return nil, err
	}
	licenses, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		path  string
		text  []byte
		mode  int64
		owner int
	}{
		{path: "data/", mode: 0o750, owner: imageUser}, // a new volume takes the owner of the directory that it covers
		{path: "etc/", mode: 0o755},
		{path: "etc/ssl/", mode: 0o755},
		{path: "etc/ssl/certs/", mode: 0o755},
		{path: caFile[1:], mode: 0o644, text: certificates()}, // to forward samples to servers with public certificates
		{path: "usr/", mode: 0o755},
		{path: "usr/bin/", mode: 0o755},
		{path: "usr/bin/freshet", mode: 0o755, text: binary},
		{path: "usr/share/", mode: 0o755},
		{path: "usr/share/doc/", mode: 0o755},
		{path: "usr/share/doc/freshet/", mode: 0o755},
		{path: "usr/share/doc/freshet/LICENSE", mode: 0o644, text: licenses},
	} {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.text)), ModTime: r.time, Uid: f.owner, Gid: f.owner,
			Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.path, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err = w.Close() // before Bytes: it writes the end
	return b.Bytes(), err
}

// certificates returns Mozilla's certificate authorities, of the version that go.mod pins: those of the machine that
// builds could be any. It leaves out the ones that Mozilla trusts only under conditions, which a file cannot express.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return b.Bytes()
}

// writeTar writes all files of a file system, in the order of their names.
func (r release) writeTar(from fs.FS, path string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	err = fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: r.time, Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	return cmp.Or(err, w.Close(), out.Close())
}
