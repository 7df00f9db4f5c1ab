# kvcachectl, the operators' tool.
