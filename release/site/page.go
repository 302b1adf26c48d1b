package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// page is a Markdown file of the repository.
type page struct {
	path   string // from the root of the repository
	title  string
	source []byte
	tree   ast.Node
}

// markdown reads files as GitHub does, which shows the same files. HTML in them is our own, so it is kept.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	// The site's Content-Security-Policy allows no style of an element, so the alignment of a column is an attribute.
	goldmark.WithRendererOptions(html.WithUnsafe(), extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
)

func parse(path string, source []byte) (*page, error) {
	ctx := parser.NewContext(parser.WithIDs(headings{}))
	p := &page{path: path, source: source, tree: markdown.Parser().Parse(text.NewReader(source), parser.WithContext(ctx))}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, is := n.(*ast.Heading); is && h.Level == 1 {
			p.title = textOf(h, source)
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s has no heading of the first level", path)
}

// headings names headings as GitHub does, so that links into pages are the same on both.
type headings map[string]bool

var (
	notInNames = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
)

func (h headings) Generate(heading []byte, _ ast.NodeKind) []byte {
	plain := linkTarget.ReplaceAllString(string(heading), "") // a link keeps its text
	name := strings.ReplaceAll(notInNames.ReplaceAllString(strings.ToLower(strings.TrimSpace(plain)), ""), " ", "-")
	unique := name
	for i := 1; h[unique]; i++ {
		unique = fmt.Sprintf("%s-%d", name, i)
	}
	h.Put([]byte(unique))
	return []byte(unique)
}

func (h headings) Put(name []byte) { h[string(name)] = true }

// textOf returns the text below a node.
func textOf(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(source))
				if n.SoftLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			if entering {
				b.Write(n.Lines().Value(source))
			}
		default:
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil // never an error
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// file returns the page's name on the site: docs/x/y.md is x/y.html, and README.md is the first page.
func file(p string) string {
	switch p {
	case firstPage:
		return "index.html"
	case "README.md":
		return "readme.html"
	case "docs/README.md":
		return "contents.html"
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(p, "docs/"), ".md")) + ".html"
}

// root returns the way from a page to the root of the site.
func (p *page) root() string { return strings.Repeat("../", strings.Count(file(p.path), "/")) }

// html renders a page. Links to other pages lead to the site, and links to other files of the repository to GitHub.
func (p *page) html(pages map[string]*page) ([]byte, error) {
	err := ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination, err = p.target(string(n.Destination), pages, "blob")
		case *ast.Image:
			n.Destination, err = p.target(string(n.Destination), pages, "raw")
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.source, p.tree); err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	out := htmlAsset.ReplaceAllFunc(b.Bytes(), func(found []byte) []byte {
		m := htmlAsset.FindSubmatch(found)
		return []byte(string(m[1]) + p.root() + assetOrFile(path.Join(path.Dir(p.path), string(m[2]))) + `"`)
	})
	out = bytes.ReplaceAll(out, []byte("<table>"), []byte(`<div class="scroll" tabindex="0"><table>`))
	out = bytes.ReplaceAll(out, []byte("</table>"), []byte("</table></div>"))
	out = bytes.ReplaceAll(out, []byte("<th></th>"), []byte("<td></td>")) // heads nothing
	out = bytes.ReplaceAll(out, []byte("<pre>"), []byte(`<pre tabindex="0">`))
	out = headingEnd.ReplaceAll(out, []byte(`<h$1 id="$2">$3 <a class="anchor" href="#$2" aria-label="Link to this section">#</a></h$1>`))
	return comments.ReplaceAll(out, nil), nil
}

var (
	// htmlAsset matches a picture of HTML in Markdown.
	htmlAsset  = regexp.MustCompile(`((?:src|srcset)=")((?:\.\./)*(?:docs/)?pictures/[^"]+)"`)
	headingEnd = regexp.MustCompile(`<h([2-6]) id="([^"]+)">(.*?)</h[2-6]>`)
	comments   = regexp.MustCompile(`(?s)<!--.*?-->\n?`)
)

// target returns where a link of the page leads on the site. For a file that is not there, github is the part of its
// address on GitHub: blob, or raw for a picture.
func (p *page) target(link string, pages map[string]*page, github string) ([]byte, error) {
	u, err := url.Parse(link)
	if err != nil {
		return nil, fmt.Errorf("%s: link %s: %w", p.path, link, err)
	}
	if u.Scheme != "" || u.Path == "" {
		return []byte(link), nil
	}
	to := path.Join(path.Dir(p.path), u.Path)
	switch {
	case pages[to] != nil, isAsset(to):
		u.Path = p.root() + assetOrFile(to)
	default:
		u.Path = ""
		return []byte(repository + "/" + github + "/main/" + to + u.String()), nil
	}
	return []byte(u.String()), nil
}

const repository = "https://github.com/freshet-io/freshet"

// isAsset reports whether a file of the repository is copied to the site: a picture in docs.
func isAsset(p string) bool {
	return strings.HasPrefix(p, "docs/") && (strings.HasSuffix(p, ".svg") || strings.HasSuffix(p, ".png"))
}

func assetOrFile(p string) string {
	if isAsset(p) {
		return strings.TrimPrefix(p, "docs/")
	}
	return file(p)
}
