package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// firstPage is what a visitor sees first.
const firstPage = "docs/tour.md"

// contents lists all pages by subject. Its order is the navigation's.
const contents = "docs/README.md"

// others are the pages outside of docs.
var others = []string{"README.md", "GLOSSARY.md", "CHANGELOG.md", "SECURITY.md"}

//go:embed page.html style.css search.js
var files embed.FS

var layout = template.Must(template.ParseFS(files, "page.html"))

// site is the manual.
type site struct {
	source     string
	pages      map[string]*page // by path
	order      []string         // of paths
	assets     []string         // paths of pictures
	navigation []group
}

// group is a part of the navigation.
type group struct {
	Title string
	Links []entry
}

// entry is a link of the navigation.
type entry struct {
	Title, File string // File is a name on the site
	path, about string // of the page, and what the contents say about it
}

// read reads and parses all pages.
func read(source string) (*site, error) {
	s := &site{source: source, pages: map[string]*page{}, order: others}
	err := filepath.WalkDir(filepath.Join(source, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err = filepath.Rel(source, name)
		switch {
		case isAsset(name):
			s.assets = append(s.assets, name)
		case strings.HasSuffix(name, ".md"):
			s.order = append(s.order, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, path := range s.order {
		text, err := os.ReadFile(filepath.Join(source, path))
		if err != nil {
			return nil, err
		}
		if s.pages[path], err = parse(path, text); err != nil {
			return nil, err
		}
	}
	for _, path := range []string{firstPage, contents} {
		if s.pages[path] == nil {
			return nil, fmt.Errorf("%s is missing", path)
		}
	}
	s.navigation = s.groups()
	return s, nil
}

// groups reads the navigation from the page of contents: a paragraph in bold is the title of a group, and the links
// up to the next one are its entries.
func (s *site) groups() (all []group) {
	p := s.pages[contents]
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if first, is := n.FirstChild().(*ast.Emphasis); is && first.Level == 2 && first.NextSibling() == nil {
			all = append(all, group{Title: textOf(n, p.source)})
			continue
		}
		if len(all) == 0 {
			continue
		}
		last := &all[len(all)-1]
		_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if link, is := n.(*ast.Link); is && entering {
				path := filepath.Join("docs", string(link.Destination))
				if s.pages[path] != nil {
					last.Links = append(last.Links, entry{capital(textOf(link, p.source)), file(path), path, p.itemOf(link)})
				}
			}
			return ast.WalkContinue, nil // never an error
		})
	}
	return all
}

// itemOf returns the text of the list item around a node, or nothing if there is none.
func (p *page) itemOf(n ast.Node) string {
	for ; n != nil; n = n.Parent() {
		if n.Kind() == ast.KindListItem {
			return textOf(n, p.source)
		}
	}
	return ""
}

// capital returns a text that begins with a capital letter.
func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// write writes the site into an empty directory.
func (s *site) write(out string) error {
	for _, path := range s.order {
		if err := s.writePage(out, s.pages[path]); err != nil {
			return err
		}
	}
	for _, path := range s.assets {
		text, err := os.ReadFile(filepath.Join(s.source, path))
		if err != nil {
			return err
		}
		if err := put(out, assetOrFile(path), text); err != nil {
			return err
		}
	}
	for _, name := range []string{"style.css", "search.js"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := put(out, name, text); err != nil {
			return err
		}
	}
	return s.writeIndex(out)
}

func (s *site) writePage(out string, p *page) error {
	body, err := p.html(s.pages)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	err = layout.Execute(&b, map[string]any{
		"Title": p.title, "File": file(p.path), "Root": p.root(), "Body": template.HTML(body), "Groups": s.navigation,
		"Source": repository + "/blob/main/" + p.path,
	})
	if err != nil {
		return err
	}
	return put(out, file(p.path), b.Bytes())
}

func put(out, name string, text []byte) error {
	name = filepath.Join(out, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// section is what the search finds: the text below a heading.
type section struct {
	Page    string `json:"page"`
	Title   string `json:"title"` // of the heading
	Address string `json:"address"`
	Text    string `json:"text"`
	About   string `json:"about,omitempty"` // what the contents say about the page, in its first section
}

// sections returns the parts of a page from one heading to the next one.
func (s *site) sections(p *page) (all []section) {
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		h, is := n.(*ast.Heading)
		if is {
			title, address := textOf(h, p.source), file(p.path)
			if id, has := h.AttributeString("id"); has && h.Level > 1 {
				address += "#" + string(id.([]byte))
			}
			all = append(all, section{Page: p.title, Title: title, Address: address})
		} else if len(all) > 0 && n.Kind() != ast.KindHTMLBlock {
			last := &all[len(all)-1]
			last.Text = strings.TrimSpace(last.Text + " " + textOf(n, p.source))
		}
	}
	return all
}

// writeIndex writes what the search looks through, the pages of the navigation first and in its order. It is a script,
// since a page that was opened from a disk may load scripts, but no data.
func (s *site) writeIndex(out string) error {
	var all []section
	seen := map[string]bool{contents: true}
	add := func(path, about string) {
		if seen[path] {
			return
		}
		seen[path] = true
		sections := s.sections(s.pages[path])
		sections[0].About = about // a page has a heading
		all = append(all, sections...)
	}
	for _, g := range s.navigation {
		for _, e := range g.Links {
			add(e.path, e.about)
		}
	}
	for _, path := range s.order {
		add(path, "")
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return put(out, "search-index.js", append(append([]byte("window.freshetIndex = "), text...), '\n'))
}
