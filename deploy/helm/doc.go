// Package helm checks the chart in freshet/, which deploys Freshet to Kubernetes: against Helm's own linter, against
// golden files, and against the types of Kubernetes and of the Prometheus operator. e2e runs what the golden files say.
//
// This is a module of its own, so that the binary's go.mod has nothing of Helm and Kubernetes.
package helm
