"""What all pages for people share: how they are rendered, their headers, their stylesheet and where assets lie."""
