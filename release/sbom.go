package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbomVersion is the version of CycloneDX in which an SBOM is written.
const sbomVersion = cdx.SpecVersion1_5

func (r release) sbom(arch string) string { return r.binary(arch) + ".cdx.json" }

// writeSBOM writes what a binary was built from: the modules that the linker noted in it, Go's own library, and the
// packages of the web page.
func (r release) writeSBOM(arch string) error {
	info, err := buildinfo.ReadFile(r.binary(arch))
	if err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join(r.source, "ui", "dist", "licenses.txt"))
	if err != nil {
		return err
	}
	this := cdx.Component{Type: cdx.ComponentTypeApplication, BOMRef: "freshet", Name: "freshet", Version: r.version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@v" + r.version}
	components := []cdx.Component{library("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil && m.Replace.Version == "" { // a directory of this repository, and so part of Freshet
			continue
		}
		components = append(components, library("golang", m.Path, m.Version, ""))
	}
	components = append(components, pagePackages(string(page))...)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &this}
	bom.Components = &components
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, sbomVersion); err != nil {
		return err
	}
	return os.WriteFile(r.sbom(arch), text.Bytes(), 0o644)
}

// library describes a package of others by its package URL.
func library(kind, name, version, license string) cdx.Component {
	url := fmt.Sprintf("pkg:%s/%s@%s", kind, strings.Replace(name, "@", "%40", 1), version)
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: name, Version: version, PackageURL: url}
	if license != "" {
		c.Licenses = &cdx.Licenses{{License: &cdx.License{ID: license}}}
	}
	return c
}

var pagePackage = regexp.MustCompile(`(?m)^(\S+) (\d\S*) \(([\w.-]+)\)$`)

// pagePackages reads the packages of the page from its licences.
func pagePackages(licenses string) (all []cdx.Component) {
	for _, m := range pagePackage.FindAllStringSubmatch(licenses, -1) {
		all = append(all, library("npm", m[1], m[2], m[3]))
	}
	return all
}
